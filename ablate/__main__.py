"""`python -m ablate`, the command `ablate`."""

from ablate.config.import_path import drop_current_folder_from_path

drop_current_folder_from_path()  # before anything else is imported

from ablate.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
