package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
)

// The limit of a consumer says how often, or until when, a message is tried.
func TestLimitSaysWhenAMessageIsGivenUp(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 27, 20, 55, 16, 0, time.UTC)
	for want, c := range map[string]struct {
		limit    operator.Limit
		attempts int
		since    time.Time
	}{
		"try 5 of 20, then dead letter":                                                {operator.Limit{Attempts: 20}, 5, since},
		"try 5 of 20, at most until 2026-11-28 20:55 UTC, then dead letter":            {operator.Limit{Attempts: 20, For: 24 * time.Hour}, 5, since},
		"try 5 until 2026-11-30 20:55 UTC, then dead letter":                           {operator.Limit{Attempts: -1, For: 72 * time.Hour}, 5, since},
		"try 5, for 3 days, then dead letter":                                          {operator.Limit{For: 72 * time.Hour}, 5, time.Time{}},
		"try 5, without end":                                                           {operator.Limit{Attempts: -1, For: -1}, 5, since},
		"waits for a build that knows it until 2026-11-27 21:55 UTC, then dead letter": {operator.Limit{Attempts: 9, ForBuild: time.Hour}, 0, since},
		"waits for a build that knows it, without end":                                 {operator.Limit{Attempts: 9}, 0, since},
	} {
		require.Equal(t, want, c.limit.Text(c.attempts, c.since))
	}
}

// As long as nobody does anything, a message is tried, or waits for a build, and is a dead letter then.
func TestLimitSaysWhatHappensByItself(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 27, 20, 55, 16, 0, time.UTC)
	for want, c := range map[string]struct {
		limit    operator.Limit
		attempts int
		since    time.Time
	}{
		"tries go on, 20 at most, then it is a dead letter": {operator.Limit{Attempts: 20}, 5, since},
		"tries go on, 20 at most, until 2026-11-28 20:55 UTC, then it is a dead letter": {
			operator.Limit{Attempts: 20, For: 24 * time.Hour}, 5, since,
		},
		"tries go on until 2026-11-30 20:55 UTC, then it is a dead letter":                        {operator.Limit{For: 72 * time.Hour}, 5, since},
		"tries go on, for 3 days, then it is a dead letter":                                       {operator.Limit{For: 72 * time.Hour}, 5, time.Time{}},
		"tries go on, without end":                                                                {operator.Limit{Attempts: -1, For: -1}, 5, since},
		"it waits for a build that knows it until 2026-11-28 20:55 UTC, then it is a dead letter": {operator.Limit{ForBuild: 24 * time.Hour}, 0, since},
	} {
		require.Equal(t, want, c.limit.Ahead(c.attempts, c.since))
	}
}
