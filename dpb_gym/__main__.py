"""The command line as ``python -m dpb_gym``."""

from dpb_gym.cli import main

if __name__ == "__main__":
    main()
