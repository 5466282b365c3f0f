package main

import (
	"testing"

	"github.com/oncebox/oncebox/internal/newcomer"
)

// The program runs as a newcomer's first one does: copied into an empty folder, as a module of its own.
func TestRunsAsAModuleOfItsOwn(t *testing.T) { (&newcomer.Program{Root: "../.."}).Try(t) }
