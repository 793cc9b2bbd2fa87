"""``python -m baechi_jax.cli`` is ``baechi``."""

from baechi_jax.cli import main

if __name__ == "__main__":
    main(prog_name="baechi")
