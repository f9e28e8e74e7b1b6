"""The zoo: small deployments, bad and good, each with what `safepoint audit` says of it."""
