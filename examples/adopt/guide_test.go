package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The mapping in each guide is the one that is tested.
func TestGuidesHaveTheMappings(t *testing.T) {
	for shape, guide := range map[string]string{
		"handwritten": "hand-written", "debezium": "debezium", "watermill": "watermill", "river": "river", "oagudo": "library",
		"masstransit": "masstransit",
	} {
		page, err := os.ReadFile("../../docs/migrating/" + guide + ".md")
		require.NoError(t, err)
		mapping, err := os.ReadFile("mappings/" + shape + ".yaml")
		require.NoError(t, err)
		require.Contains(t, string(page), "```yaml\n"+string(mapping)+"```", guide)
	}
}
