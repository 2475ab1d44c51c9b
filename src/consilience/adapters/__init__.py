"""The adapter library: small anchors on the blocks of a frozen trunk, mixed token by token by a graded dispatch.

``attach_amoe`` (:mod:`consilience.adapters.attach`) puts a library on a model, ``AnchorLibrary``
(:mod:`consilience.adapters.library`) is the library, :mod:`consilience.adapters.reads` measures what it does.
"""
