"""Teachers: embedding models that are only read. One backend a file, one spec string for all of them."""
