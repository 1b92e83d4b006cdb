"""The tables and figures of five publications, with this package's figures beside them."""
