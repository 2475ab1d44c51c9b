"""``python -m consilience``."""

from consilience.cli.main import main

if __name__ == "__main__":
    main()
