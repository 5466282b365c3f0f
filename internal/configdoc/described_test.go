package configdoc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/fresh"
	"github.com/oncebox/oncebox/internal/configdoc"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox/adopt"
	"github.com/oncebox/oncebox/serve"
)

// described lists the configurations of docs/config.md. The configurations of other packages are fields of config.Config.
func described() []configdoc.Struct {
	return []configdoc.Struct{
		{
			Defaults: (&config.Config{}).WithDefaults(), Prefix: "ONCEBOX_",
			Varies: []string{"Registry"}, // made anew for each configuration
			Else:   map[string]string{"ONCEBOX_DATABASE_URL": "DATABASE_URL"},
		},
		{
			Defaults: (*pulsar.Config)(nil).WithDefaults(), Prefix: "ONCEBOX_PULSAR_",
			Varies: []string{"Name"}, // the name of the host
			Else:   map[string]string{"ONCEBOX_PULSAR_URL": "PULSAR_URL", "ONCEBOX_PULSAR_ADMIN_URL": "PULSAR_ADMIN_URL"},
		},
		{Defaults: (*memory.Config)(nil).WithDefaults(), Prefix: "ONCEBOX_MEMORY_"},
		{Defaults: (*httpmw.IdempotencyConfig)(nil).WithDefaults()},
		{Defaults: (&httpmw.LeaseConfig{}).WithDefaults()},
		{Defaults: (*fresh.Config)(nil).WithDefaults()},
		{Defaults: migrations.Config{}},
		{Defaults: (*console.Config)(nil).WithDefaults()},
		{Defaults: (*adopt.Config)(nil).WithDefaults()},
		{Defaults: (*serve.Config)(nil).WithDefaults(), Prefix: "ONCEBOX_SERVE_"},
	}
}

// docs/config.md has each field with what the source says, and its default as the code has it. WRITE_CONFIG=1 writes it.
func TestPageIsThatOfTheSource(t *testing.T) {
	tables, err := configdoc.Tables("../..", described()...)
	require.NoError(t, err)
	require.NoError(t, configdoc.Page("../../docs/config.md", "config", tables))

	first, err := configdoc.First("../..", described(), "ONCEBOX_DATABASE_URL", "ONCEBOX_SOURCE", "ONCEBOX_PULSAR_URL", "ONCEBOX_SCHEMA",
		"ONCEBOX_POOLER", "ONCEBOX_OUTBOX_RETENTION", "ONCEBOX_INBOX_HANDLER_TIMEOUT", "ONCEBOX_CONSUMER_CONCURRENCY")
	require.NoError(t, err)
	require.NoError(t, configdoc.Page("../../docs/config.md", "first settings", first))

	names, err := configdoc.Configs("../..")
	require.NoError(t, err)
	require.Contains(t, names, "uow.Config")
	for _, name := range names {
		require.Contains(t, tables, "\n### "+name+"\n", "add it to described")
	}
}

// A setting is described although another struct has a setting of its name and type.
func TestSettingWithTheNameOfAnotherIsDescribed(t *testing.T) {
	page, err := configdoc.Tables("../..", described()...)
	require.NoError(t, err)
	for _, means := range []string{"Refuses a request without a key", "The length of the lease that a process takes on the key of a request"} {
		require.Contains(t, page, means)
	}
	require.Contains(t, page, "`DatabaseWait` ([config.Config](#configconfig)); `Telemetry` ([telemetry.Config](#telemetryconfig))")
}
