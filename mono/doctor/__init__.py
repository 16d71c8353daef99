"""What this machine, its SGLang and a checkpoint's server arguments come to, before a server is started."""
