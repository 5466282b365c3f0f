// Command house prints how large the code of this module is, package by package:
//
//	go run ./internal/house
//
// Product is what services and operators run. Support is code that only tests use. Examples, benchmarks, generated files and the
// programs of the documentation are left out. A package's exported names are those at package level and the exported methods of
// exported types. Comment/code is the number of lines that hold nothing but a comment, divided by the number of lines that hold code.
//
// The test of this package fails if a package, a type or a file outgrows the rules in rules.go, or if the same code stands twice.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	fsys := os.DirFS(root)
	t, err := readTree(fsys)
	if err != nil {
		return err
	}
	tables, err := countTables(fsys)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	printMeasures(out, t, tables)
	return out.Flush()
}

// moduleRoot returns the nearest folder upwards with a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("no go.mod in this folder or above it: run it in a clone of oncebox")
		}
		dir = above
	}
}
