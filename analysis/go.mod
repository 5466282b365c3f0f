// The analyzers are a module of their own, so that golang.org/x/tools never enters the product's go.mod.
module github.com/oncebox/oncebox/analysis

go 1.26.0

require golang.org/x/tools v0.52.0

require (
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
