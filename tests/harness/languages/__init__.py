"""What it means to run a block, language by language."""
