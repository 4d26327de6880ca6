module afd.dev/rack/pause

go 1.26.0
