package configdoc

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// adapters are the packages whose Config has settings of the same names.
func adapters() []string { return []string{"pulsar", "nats", "kafka", "rabbitmq"} }

// differ are the settings that have the same name in several adapters, and mean something of their own in each.
func differ() []string {
	return []string{
		"ConnectionTimeout", "Declare", "HandoverTimeout", "InFlight", "MaxMessageBytes", "MaxReceivedBytes", "Name", "Partitions", "Password", "Prefix",
		"Producers", "Subscriptions", "Telemetry", "Token", "Topics", "URL",
	}
}

// A setting that each adapter has says the same in each. NATS calls its broker a server.
func TestTwinsSayTheSame(t *testing.T) {
	said := map[string][]string{}
	for _, name := range adapters() {
		specs, err := source{}.specs("../../messaging/" + name)
		require.NoError(t, err)
		for _, f := range specs["Config"].structure.Fields.List {
			if field := f.Names[0].Name; ast.IsExported(field) {
				said[field] = append(said[field], strings.ReplaceAll(strings.Join(strings.Fields(f.Doc.Text()), " "), "server", "broker"))
			}
		}
	}
	require.Greater(t, len(said["CloseTimeout"]), 3, "the settings are found")
	for field, texts := range said {
		texts = slices.Compact(slices.Sorted(slices.Values(texts)))
		require.Equal(t, slices.Contains(differ(), field), len(texts) > 1, "%s: %q", field, texts)
	}
}
