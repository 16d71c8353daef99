"""GLM-5.3-Flash: KDA and sparse MLA layers, hyper-connected residual streams, MXFP4 experts."""
