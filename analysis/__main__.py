"""`python -m analysis`."""

from ablate.config.import_path import leave_current_folder

leave_current_folder()  # before anything else is imported

from ablate.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main("analyse")
