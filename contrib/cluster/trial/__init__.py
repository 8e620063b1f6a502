"""What the cluster survives: faults one after the other, a deploy, and many streams, all with work on its way."""
