// Package configdoc writes the tables of docs/config.md: one for each Config of the module, with the variable, name, type, default and
// meaning of each field.
//
// Names, types and meanings are those of the source, read with go/ast. A default is the value that the code gives a field that says nothing
// (WithDefaults); the comment of the field must say the same, else [Tables] returns an error. So neither the page nor a comment can be stale
// while the test of package config passes.
//
// Read first: tables.go:Tables, then source.go.
package configdoc
