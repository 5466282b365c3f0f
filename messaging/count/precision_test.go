package count_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging/count"
)

// A precision is written and read as a text, and the sum of numbers is as precise as the worst of them.
func TestPrecision(t *testing.T) {
	all := []count.Precision{count.Exact, count.Estimated, count.AtLeast}
	text, err := json.Marshal(all)
	require.NoError(t, err)
	require.JSONEq(t, `["exact", "estimated", "at least"]`, string(text))
	var read []count.Precision
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, all, read)
	require.ErrorContains(t, json.Unmarshal([]byte(`["roughly"]`), &read), `"roughly" is none of exact, estimated and at least`)
	require.Equal(t, "7, about 7, at least 7", fmt.Sprintf("%s7, %s7, %s7", all[0].Words(), all[1].Words(), all[2].Words()))
	require.Equal(t, count.AtLeast, max(count.Estimated, count.AtLeast, count.Exact))
}
