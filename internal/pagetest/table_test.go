package pagetest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCell(t *testing.T) {
	page := "# A page\n\n| | cats | dogs |\n|---|---|---|\n| legs | 4 | four |\n\nText.\n\n| | dogs |\n|---|---|\n| names | Rex |\n"
	require.Equal(t, "four", Cell(t, page, "legs", "dogs"))
	require.Equal(t, "4", Cell(t, page, "legs", "cats"))
	require.Equal(t, "Rex", Cell(t, page, "names", "dogs"))
}
