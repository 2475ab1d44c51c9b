"""Committee."""
