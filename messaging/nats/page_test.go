package nats

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/configdoc"
	"github.com/oncebox/oncebox/internal/pagetest"
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

// docs/brokers.md compares the brokers by their defaults.
func TestNumbersOfTheComparison(t *testing.T) {
	page, err := os.ReadFile("../../docs/brokers.md")
	require.NoError(t, err)
	cfg, own := (*Config)(nil).WithDefaults(), connect(t, config(serve(t).URL()))
	require.Equal(t, 7*24*time.Hour, cfg.MaxAge)
	for row, want := range map[string]string{
		"partitions of a new topic":                   strconv.Itoa(cfg.Partitions),
		"a message that was not acknowledged is kept": "for `MaxAge`, a week",
		"the server recognizes a copy": fmt.Sprintf(
			"yes, within %.0f minutes", cfg.DuplicateWindow.Minutes()),
		"largest message, unless the server is set otherwise": fmt.Sprintf(
			"%d MiB with the headers", own.session.Conn.MaxPayload()>>20),
		"subscriptions of type `Failover` (order by key, the default)":                     "yes",
		"subscriptions of type `KeyShared` (order by key, more processes than partitions)": "no",
		"subscriptions of type `Shared` (no order)":                                        "yes",
	} {
		require.Equal(t, want, pagetest.Cell(t, string(page), row, "NATS JetStream"), row)
	}
}
