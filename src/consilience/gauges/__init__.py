"""Read-only measurements of embeddings: geometry, neighbours, agreement, variation. They never receive gradients."""
