// Command oncebox-vet is a tool for go vet -vettool with the analyzers of package analysis.
package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/oncebox/oncebox/analysis"
)

func main() { unitchecker.Main(analysis.Pool, analysis.Track) }
