package config_test

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// clean removes our variables for the time of the test.
func clean(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "ONCEBOX_") || name == "DATABASE_URL" || strings.HasPrefix(name, "PULSAR_") {
			t.Setenv(name, "")
			require.NoError(t, os.Unsetenv(name))
		}
	}
}

func TestFromEnvReadsTheNamesThatOutsidersRelyOn(t *testing.T) {
	clean(t)
	for name, value := range map[string]string{
		"ONCEBOX_DATABASE_URL": "postgres://a", "DATABASE_URL": "postgres://b",
		"ONCEBOX_SCHEMA": "s", "ONCEBOX_DEFAULT_TENANT_ID": "acme", "ONCEBOX_SOURCE": "shop",
		"ONCEBOX_OUTBOX_BATCH_SIZE": "100", "ONCEBOX_OUTBOX_MAX_RETRY_ATTEMPTS": "7", "ONCEBOX_OUTBOX_RETRY_DELAY": "30s",
		"ONCEBOX_OUTBOX_PUBLISH_TIMEOUT": "4s", "ONCEBOX_OUTBOX_SLEEP_BUSY": "50ms", "ONCEBOX_OUTBOX_SLEEP_IDLE": "1s",
		"ONCEBOX_OUTBOX_RETENTION": "48h", "ONCEBOX_INBOX_RETENTION": "96h", "ONCEBOX_IDEMPOTENCY_TTL": "72h",
	} {
		t.Setenv(name, value)
	}
	c, err := config.FromEnv()
	require.NoError(t, err)
	require.Equal(t, "postgres://a", c.DatabaseURL, "ours comes before the general name")
	require.Equal(t, 100, c.Projector.BatchSize)
	require.Equal(t, 7, c.Projector.MaxRetryAttempts)
	require.Equal(t, 30*time.Second, c.Projector.Retry.Delay)
	require.Equal(t, 4*time.Second, c.Projector.PublishTimeout)
	require.Equal(t, 50*time.Millisecond, c.Projector.SleepBusy)
	require.Equal(t, time.Second, c.Projector.SleepIdle)
	require.Equal(t, 48*time.Hour, c.Outbox.Retention)
	require.Equal(t, 96*time.Hour, c.Inbox.Retention)
	require.Equal(t, 72*time.Hour, c.Idempotency.TTL)

	shared := c.Shared()
	require.Equal(t, []string{"s", "s", "s"}, []string{shared.Outbox.Schema, shared.Inbox.Schema, shared.Idempotency.Schema})
	require.Equal(t, "shop", shared.Outbox.Source)
	require.Equal(t, "acme", shared.Outbox.DefaultTenantID)
	require.Equal(t, "acme", shared.UoW.DefaultTenantID)
	require.Same(t, shared.UoW.Registry, shared.Outbox.Registry)
}

func TestRetentionsThatAreNoDurations(t *testing.T) {
	for value, want := range map[string]time.Duration{"0": outbox.NoRetention, "0s": outbox.NoRetention, "-1": outbox.KeepForever} {
		clean(t)
		t.Setenv("ONCEBOX_OUTBOX_RETENTION", value)
		c, err := config.FromEnv()
		require.NoError(t, err)
		require.Equal(t, want, c.Outbox.Retention)
	}
}

// Every duration can be written as -1, and is refused exactly where the page of the variables does not say what that means.
func TestDurationsAreOffWithMinusOne(t *testing.T) {
	page, err := os.ReadFile("../docs/config.md")
	require.NoError(t, err)
	fields := durationFields(reflect.TypeFor[config.Config](), "ONCEBOX_", nil)
	require.Contains(t, fields, "ONCEBOX_INBOX_RETRY_DEPLOY_WAIT")
	for variable, field := range fields {
		clean(t)
		t.Setenv(variable, "-1")
		c, err := config.FromEnv()
		require.EqualValues(t, -1, reflect.ValueOf(c).FieldByIndex(field).Int(), "%s: %v", variable, err)
		row := regexp.MustCompile("(?m)^\\| `" + variable + "` .*$").FindString(string(page))
		require.Equal(t, strings.Contains(row, "`-1`"), err == nil, "%s: %v", variable, err)
		if err != nil {
			require.ErrorContains(t, err, variable+" is -1ns: give ")
		}
	}
}

// durationFields returns the fields of type time.Duration by their variables.
func durationFields(of reflect.Type, prefix string, path []int) map[string][]int {
	out := map[string][]int{}
	for i := range of.NumField() {
		f, at := of.Field(i), append(slices.Clone(path), i)
		switch name, tagged := f.Tag.Lookup("env"); {
		case tagged && f.Type == reflect.TypeFor[time.Duration]():
			out[prefix+name] = at
		case f.Type.Kind() == reflect.Struct:
			maps.Copy(out, durationFields(f.Type, prefix+f.Tag.Get("envPrefix"), at))
		}
	}
	return out
}

func TestOpenDBSaysWhatToDo(t *testing.T) {
	_, err := config.OpenDB(t.Context(), config.Config{})
	require.ErrorContains(t, err, "set ONCEBOX_DATABASE_URL")
	_, err = config.OpenDB(t.Context(), config.Config{
		DatabaseURL: "postgres://user:secret@127.0.0.1:1/app?connect_timeout=2", DatabaseWait: -1,
	})
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.ErrorContains(t, err, "does not answer")
	require.NotContains(t, err.Error(), "secret")
	_, err = config.OpenDB(t.Context(), config.Config{DatabaseURL: "postgres://host/app?pool_min_conns=1&pool_max_conns=5"})
	require.ErrorContains(t, err, "has pool_max_conns, which only pgxpool reads: remove it and call SetMaxOpenConns")
	require.ErrorContains(t, err, "has pool_min_conns")
	_, err = config.OpenDB(t.Context(), config.Config{DatabaseURL: "localhost:5432/app"})
	require.ErrorContains(t, err, "give for example postgres://")
	for _, url := range []string{
		"postgres://user:%secret@host/app", "postgres://user:12/secret@host/app?sslmode=bogus", "postgres://user:1@%secret@host/app",
		"postgres://host/app?sslmode=bogus&password=secret", "host=h password = secret sslmode=bogus", "host=h password = 'a secret' sslmode=bogus",
	} {
		_, err := config.OpenDB(t.Context(), config.Config{DatabaseURL: url})
		require.ErrorContains(t, err, "ONCEBOX_DATABASE_URL", url)
		require.NotContains(t, err.Error(), "secret", url)
	}
}

// Config.Schema is where the tables of oncebox are. Where those of the service are remains the choice of the URL, the role and the database.
func TestOpenDBLeavesTheSearchPath(t *testing.T) {
	base := pgtest.Open(t)
	db, err := config.OpenDB(t.Context(), config.Config{DatabaseURL: base.DSN, Schema: "elsewhere"})
	require.NoError(t, err)
	defer db.Close()
	var path string
	require.NoError(t, db.NewRaw("SHOW search_path").Scan(t.Context(), &path))
	require.Equal(t, base.Schema, path)
}

// docs/config.md lists every variable, and none that does not exist.
func TestEveryVariableIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/config.md")
	require.NoError(t, err)
	fields, err := env.GetFieldParamsWithOptions(&config.Config{}, env.Options{Prefix: "ONCEBOX_"})
	require.NoError(t, err)
	require.NotEmpty(t, fields)
	var missing []string
	for _, f := range fields {
		if !strings.Contains(string(page), "`"+f.Key+"`") {
			missing = append(missing, f.Key)
		}
	}
	require.Empty(t, missing, "not documented")
	for _, name := range regexp.MustCompile("`(ONCEBOX_[A-Z_]*[A-Z])`").FindAllStringSubmatch(string(page), -1) {
		clean(t)
		t.Setenv(name[1], "?")
		_, err := config.FromEnv()
		require.False(t, err != nil && strings.Contains(err.Error(), "does not exist"), "%s is documented and nothing reads it", name[1])
	}
}

// A limit that is said to be off at -1 takes it, as a duration and as a count.
func TestMinusOneIsTakenWhereItIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/config.md")
	require.NoError(t, err)
	found := 0
	for row := range strings.Lines(string(page)) {
		name := regexp.MustCompile("^\\| `(ONCEBOX_[A-Z_]+)`").FindStringSubmatch(row)
		if name == nil || !strings.Contains(row, "`-1`") || strings.HasPrefix(name[1], "ONCEBOX_PULSAR_") {
			continue
		}
		found++
		clean(t)
		t.Setenv(name[1], "-1")
		_, err := config.FromEnv()
		require.NoError(t, err, row)
	}
	require.Greater(t, found, 20)
}
