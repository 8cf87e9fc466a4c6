module natoutgoing.io/test/pause

go 1.26.0
