"""Reports of runs: Markdown, self-contained HTML, plots. Results in, text out; no models, no training."""
