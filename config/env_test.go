package config_test

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
)

// Variables that cannot be read, and variables that can be read and not used: each is named once, with its value and
// what is expected. Names of struct fields would not help, because several structs have them, and people who set
// variables do not know them.
func TestBadValuesNameTheirVariables(t *testing.T) {
	for _, c := range []struct{ variable, value, says string }{
		{"INBOX_RETRY_DELAY", "10", `ONCEBOX_INBOX_RETRY_DELAY is "10": give a duration such as 500ms, 2s or 168h, or -1 where that is off`},
		{"OUTBOX_BATCH_SIZE", "many", `ONCEBOX_OUTBOX_BATCH_SIZE is "many": give a whole number (int)`},
		{"OUTBOX_GROUP", "70000", `ONCEBOX_OUTBOX_GROUP is "70000": give a whole number (int16)`},
		{"POOLER", "perhaps", `ONCEBOX_POOLER is "perhaps": give true or false`},
		{"OUTBOX_BATCH_SIZE", "-5", `ONCEBOX_OUTBOX_BATCH_SIZE is -5: give a count of at least 1`},
		{"CONSUMER_BATCH_SIZE", "-5", `ONCEBOX_CONSUMER_BATCH_SIZE is -5: give a count of at least 1`},
		{"OUTBOX_MAX_RETRY_ATTEMPTS", "-2", `ONCEBOX_OUTBOX_MAX_RETRY_ATTEMPTS is -2: give a count, or -1 for no end`},
		{"OUTBOX_PUBLISH_TIMEOUT", "1h", `ONCEBOX_OUTBOX_PUBLISH_TIMEOUT (1h0m0s) + 1s must be less than ONCEBOX_OUTBOX_LEASE - ONCEBOX_OUTBOX_RENEW (7s)`},
		{"IDEMPOTENCY_TTL", "-5s", `ONCEBOX_IDEMPOTENCY_TTL is -5s: give a duration, or -1 (KeepForever)`},
		{"UNIT_RETRY_DELAY", "-5s", `ONCEBOX_UNIT_RETRY_DELAY is -5s: give a duration`},
		{"CONSUMER_RETRY_DELAY", "-5s", `ONCEBOX_CONSUMER_RETRY_DELAY is -5s: give a duration`},
		{"IDLE_IN_TRANSACTION", "1ns", `ONCEBOX_IDLE_IN_TRANSACTION is 1ns: give 1ms or more, or -1 for the server's own`},
		{"SOURCE", "a\nb", `ONCEBOX_SOURCE contains a NUL or another control character`},
	} {
		clean(t)
		t.Setenv("ONCEBOX_"+c.variable, c.value)
		_, err := config.FromEnv()
		require.EqualError(t, err, "config: "+c.says)
	}
}

func TestFromEnvReportsAllThatIsWrong(t *testing.T) {
	clean(t)
	t.Setenv("ONCEBOX_OUTBOX_BATCH_SIZE", "many")
	t.Setenv("ONCEBOX_INBOX_RETRY_DELAY", "soon")
	t.Setenv("ONCEBOX_OUTBOX_RETRY_DELAI", "1s")
	_, err := config.FromEnv()
	for _, says := range []string{`ONCEBOX_OUTBOX_BATCH_SIZE is "many"`, `ONCEBOX_INBOX_RETRY_DELAY is "soon"`, "ONCEBOX_OUTBOX_RETRY_DELAI does not exist"} {
		require.ErrorContains(t, err, says)
	}
	clean(t)
	t.Setenv("ONCEBOX_OUTBOX_BATCH_SIZE", "-5")
	t.Setenv("ONCEBOX_IDEMPOTENCY_TTL", "-5s")
	_, err = config.FromEnv()
	require.ErrorContains(t, err, "ONCEBOX_OUTBOX_BATCH_SIZE is -5")
	require.ErrorContains(t, err, "ONCEBOX_IDEMPOTENCY_TTL is -5s")
}

// A service has settings of its own, and no off-value. Each line of the error can be read alone.
func TestEachLineNamesItsVariable(t *testing.T) {
	var cfg struct {
		URL     string        `env:"URL,notEmpty"`
		Name    string        `env:"NAME,required"`
		Hold    time.Duration `env:"HOLD"`
		From    netip.Addr    `env:"FROM"`
		Retries int           `env:"RETRIES"`
	}
	t.Setenv("TICKETS_URL", "")
	t.Setenv("TICKETS_HOLD", "5")
	t.Setenv("TICKETS_FROM", "x")
	t.Setenv("TICKETS_RETRIES", "few")
	err := config.Env("TICKETS_", &cfg)
	require.Error(t, err)
	require.ElementsMatch(t, []string{
		`config: TICKETS_URL is not set, or empty: it is required`,
		`config: TICKETS_NAME is not set, or empty: it is required`,
		`config: TICKETS_HOLD is "5": give a duration such as 500ms, 2s or 168h`,
		`config: TICKETS_FROM cannot be used: ParseAddr("x"): unable to parse IP`,
		`config: TICKETS_RETRIES is "few": give a whole number (int)`,
	}, strings.Split(err.Error(), "\n"))
}

// A map takes pairs. The error about an entry shows no value, because a value may be a password.
func TestMapOfPairs(t *testing.T) {
	var cfg struct {
		Tokens map[string]string `env:"TOKENS"`
	}
	t.Setenv("TICKETS_TOKENS", "secret:acme,other:globex")
	require.NoError(t, config.Env("TICKETS_", &cfg))
	require.Equal(t, map[string]string{"secret": "acme", "other": "globex"}, cfg.Tokens)
	t.Setenv("TICKETS_TOKENS", "secret:acme,other")
	err := config.Env("TICKETS_", &cfg)
	require.ErrorContains(t, err, "TICKETS_TOKENS has an entry that is not key:value")
	require.NotContains(t, err.Error(), "secret")
}

// looks is set where TestGoTestSeesTheVariables runs this program as go test does.
const looks = "CONFIG_TEST_LOOKS"

// go test does not run a test again whose variables are those of the last time. It knows the variables that a test has looked up by their
// names, from a file that the program of the test writes, and none of a list of all.
func TestGoTestSeesTheVariables(t *testing.T) {
	if os.Getenv(looks) != "" {
		_, err := config.FromEnv()
		require.NoError(t, err)
		return
	}
	log := filepath.Join(t.TempDir(), "log")
	clean(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGoTestSeesTheVariables$", "-test.testlogfile="+log)
	cmd.Env = append(os.Environ(), looks+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	seen, err := os.ReadFile(log)
	require.NoError(t, err)
	for _, name := range []string{"ONCEBOX_DATABASE_URL", "DATABASE_URL", "ONCEBOX_OUTBOX_BATCH_SIZE", "ONCEBOX_IGNORE"} {
		require.Contains(t, string(seen), "getenv "+name+"\n")
	}
}
