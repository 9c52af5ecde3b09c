"""Which release this is; the package is built with this version."""

VERSION = "0.1.0"
