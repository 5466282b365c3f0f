// Package configdoc writes the tables of docs/config.md: one for each Config of the module, with the variable, name, type, default and
// meaning of each field.
//
// Names, types and meanings come from the source, which is read with go/ast. A default is the value that WithDefaults gives to an empty field. The
// comment of the field must say the same, otherwise [Tables] returns an error. So as long as the test of package config passes, the page and the
// comments match the code.
//
// Read first: tables.go:Tables, then source.go.
package configdoc
