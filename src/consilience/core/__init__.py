"""What every tier uses: errors, atomic files, content hashes, seeds, progress, protocols."""
