"""Fast versions of what the other rooms define.

Everything here exists because a backend or a compiler is slow, or lacks something.
Each kernel names the plain form that it must equal, and a test compares the two.
`target` alone asks which backend, compiler and device the code runs on.
"""
