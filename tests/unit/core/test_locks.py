"""One working folder, one job: other threads and processes are refused, the same verb may come back."""

import threading

import pytest

from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import ResumeError
from consilience.core.locks import lock_work, one_job

PLAN = {"job": 1}


@one_job
def work_on(out, meanwhile=lambda: None):
    work, _ = begin_artefact(out, PLAN)
    begin_artefact(out, PLAN)  # a stage may be opened twice
    meanwhile()
    (work / "a.txt").write_text("a")
    return finish_artefact(out, kind="test", manifest={}, files=["a.txt"])


def in_a_thread(function):
    seen = []

    def run():
        try:
            function()
        except ResumeError as error:
            seen.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return seen


def test_a_second_job_is_refused_while_the_first_works(tmp_path):
    out, seen = tmp_path / "out", []
    manifest = work_on(out, lambda: seen.extend(in_a_thread(lambda: work_on(out))))
    assert seen == [f"{out}.partial: another process is writing it. Wait for it or choose another --out"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert manifest["files"]["a.txt"]


def test_a_failed_job_gives_its_folder_free(tmp_path):
    def fail():
        raise OSError

    with pytest.raises(OSError):
        work_on(tmp_path / "out", fail)
    assert in_a_thread(lambda: work_on(tmp_path / "out")) == []
    assert (tmp_path / "out" / "a.txt").read_text() == "a"


def test_a_folder_that_was_finished_meanwhile_is_not_worked_on(tmp_path):
    with pytest.raises(ResumeError, match="another job has just finished it"):
        lock_work(tmp_path / "out.partial")
