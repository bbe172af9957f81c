module pawl.dev/hack/pause

go 1.26.0
