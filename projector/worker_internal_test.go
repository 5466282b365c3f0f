package projector

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGroupsOfLanesAreOfOneSize(t *testing.T) {
	for _, tt := range []struct{ lanes, most, size int }{
		{1, 16, 1}, {16, 16, 16}, {17, 16, 9}, {21, 16, 11}, {22, 16, 11}, {64, 16, 16}, {21, 21, 21},
	} {
		require.Equal(t, tt.size, evenly(tt.lanes, tt.most), "%d lanes", tt.lanes)
	}
}
