package outboxdb

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
)

func TestMetadataIsJSON(t *testing.T) {
	nightly.Check(t, 100, 10_000, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z":,{}<&\\ü\n\x00\x7f]{0,6}`)
		want := event.Metadata(rapid.MapOf(text, text).Draw(t, "metadata"))
		written, err := encodeMetadata(want)
		require.NoError(t, err)
		var decoded event.Metadata
		require.NoError(t, json.Unmarshal([]byte(written), &decoded))
		require.Equal(t, want, decoded)
		if got := flatMetadata(written); got != nil {
			require.Equal(t, want, got)
		}
	})
}

func TestFlatMetadataKnowsItsLimits(t *testing.T) {
	for _, text := range []string{`{"a":1}`, `{"a": "b"}`, `{"a":"b" }`, `{"a":null,"b":"c"}`, `{"a":{"b":"c"}}`, `[]`, `null`, `{"a":["x"],"b":"y"}`} {
		require.Nil(t, flatMetadata(text), text)
	}
	require.Equal(t, event.Metadata{}, flatMetadata("{}"))
	require.Equal(t, event.Metadata{"a": "", "b": "ü"}, flatMetadata(`{"a":"","b":"ü"}`))
}
