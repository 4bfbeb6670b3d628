"""What is measured: a model of anybody's, with its tokenizer and the place where position enters."""
