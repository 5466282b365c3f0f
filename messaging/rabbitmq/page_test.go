package rabbitmq

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/configdoc"
	"github.com/oncebox/oncebox/internal/pagetest"
	"github.com/oncebox/oncebox/telemetry"
)

// docs/config.md has each field with what the source says, and its default as the code has it. WRITE_CONFIG=1 writes it.
func TestPageIsThatOfTheSource(t *testing.T) {
	tables, err := configdoc.Tables("../..", configdoc.Struct{
		Defaults: (*Config)(nil).WithDefaults(), Prefix: "ONCEBOX_RABBITMQ_",
		Varies: []string{"Name"}, // the name of the host
		Above:  []any{telemetry.Config{}},
	})
	require.NoError(t, err)
	require.NoError(t, configdoc.Page("../../docs/config.md", "messaging/rabbitmq", tables))
}

// docs/brokers.md compares the brokers by their defaults.
func TestNumbersOfTheComparison(t *testing.T) {
	page, err := os.ReadFile("../../docs/brokers.md")
	require.NoError(t, err)
	cfg := (*Config)(nil).WithDefaults()
	for row, want := range map[string]string{
		"partitions of a new topic": fmt.Sprintf("%d queues for each subscription", cfg.Queues),
		"how the partition of an event is chosen": fmt.Sprintf(
			"FNV-1a hash of the ordering key gives one of %d numbers, which is a part of the AMQP routing key", lanes),
		"largest message, unless the server is set otherwise": fmt.Sprintf("%d MiB (128 MiB before version 4)", cfg.MaxMessageBytes>>20),
	} {
		require.Equal(t, want, pagetest.Cell(t, string(page), row, "RabbitMQ"), row)
	}
}
