package nats

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/configdoc"
	"github.com/oncebox/oncebox/telemetry"
)

// docs/config.md has each field with what the source says, and its default as the code has it. WRITE_CONFIG=1 writes it.
func TestPageIsThatOfTheSource(t *testing.T) {
	tables, err := configdoc.Tables("../..", configdoc.Struct{
		Defaults: (*Config)(nil).WithDefaults(), Prefix: "ONCEBOX_NATS_",
		Varies: []string{"Name", "InboxPrefix", "Replicas"}, // of the host, of the client, and of the server
		Above:  []any{telemetry.Config{}},
	})
	require.NoError(t, err)
	require.NoError(t, configdoc.Page("../../docs/config.md", "messaging/nats", tables))
}
