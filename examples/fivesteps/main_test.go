package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/newcomer"
)

// The program runs as a newcomer's first one does: copied into an empty folder, as a module of its own.
func TestRunsAsAModuleOfItsOwn(t *testing.T) {
	said := (&newcomer.Program{Root: "../.."}).Run(t)
	require.Contains(t, said, "POST /orders/o-1: 201 Created replayed: false\nPOST /orders/o-1: 201 Created replayed: true\n")
	require.Contains(t, said, "\nsold for 42\n")
}
