// Command memory is the quickstart with a broker in the same process. The command above it compiles and starts it.
package main

import (
	"os"

	"github.com/oncebox/oncebox/examples/quickstart/tour"
)

func main() { os.Exit(tour.Main()) }
