package upkeep_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
)

// beside is the store of a second process with other settings, and its log.
func (f *fixture) beside(cfg outbox.Config) (*outbox.Store, *bytes.Buffer) {
	log := &bytes.Buffer{}
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(log, nil))
	return outbox.NewStore(f.DB.DB, &cfg), log
}

// Rows that the first process keeps or archives are dropped by no other one.
func TestRetentionBelongsToTheDatabase(t *testing.T) {
	day := time.Now().UTC().AddDate(0, 0, -10).Format(time.DateOnly)
	archive := func(context.Context, outbox.Partition) error { return nil }
	for name, first := range map[string]outbox.Config{
		"kept longer": {Retention: 30 * 24 * time.Hour},
		"for ever":    {Retention: outbox.KeepForever},
		"archived":    {Retention: outbox.DefaultRetention, BeforeDrop: archive},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, &first)
			require.NoError(t, f.Upkeep().EnsurePartitions(t.Context())) // as a projector does at its start
			f.Child(day)
			f.PublishedOn(day, 3)
			other, log := f.beside(outbox.Config{})
			require.NoError(t, other.Upkeep().EnsurePartitions(t.Context()))
			require.NoError(t, other.Clean(t.Context()))
			require.Equal(t, 3, f.Count("outbox_sent"))
			require.NotContains(t, log.String(), "WARN", "it has no setting of its own")

			strict, log := f.beside(outbox.Config{Retention: 24 * time.Hour})
			require.NoError(t, strict.Upkeep().EnsurePartitions(t.Context()))
			require.Contains(t, log.String(), "Store.Upkeep().SetRetention")
			require.Contains(t, log.String(), "config=24h0m0s")
			require.NoError(t, strict.Clean(t.Context()))
			require.Equal(t, 3, f.Count("outbox_sent"))

			require.ErrorContains(t, strict.Upkeep().SetRetention(t.Context(), operator.By{Actor: "ann"}), "By.Reason is empty")
			require.NoError(t, strict.Upkeep().SetRetention(t.Context(), operator.By{Actor: "ann", Reason: "the disk is small"}))
			require.NoError(t, strict.Clean(t.Context()))
			require.Zero(t, f.Count("outbox_sent"))
			require.Equal(t, 1, f.Count("oncebox_audit WHERE action = 'retention' AND reason LIKE '% to 24:00:00, archived: false: the disk is small'"))
		})
	}
}

// From the moment when a process archives, the others drop nothing, although it came later.
func TestArchiveThatIsIntroducedLaterCounts(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	day := time.Now().UTC().AddDate(0, 0, -10).Format(time.DateOnly)
	f.Child(day)
	f.PublishedOn(day, 3)
	archived := 0
	archive, _ := f.beside(outbox.Config{BeforeDrop: func(context.Context, outbox.Partition) error {
		archived++
		return nil
	}})
	require.NoError(t, archive.Upkeep().EnsurePartitions(t.Context()))
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, 3, f.Count("outbox_sent"))
	require.NoError(t, archive.Clean(t.Context()))
	require.Zero(t, f.Count("outbox_sent"))
	require.Equal(t, 1, archived)
}

// A process without a setting enters none. Of several settings the longest one counts, in whatever order the processes start, and
// each change of the rule is in the audit.
func TestLongestRetentionCounts(t *testing.T) {
	const day = 24 * time.Hour
	f := newFixture(t, nil)
	old := time.Now().UTC().AddDate(0, 0, -10).Format(time.DateOnly)
	f.Child(old)
	f.PublishedOn(old, 3)
	clean := func(s *outbox.Store, kept int) {
		t.Helper()
		require.NoError(t, s.Clean(t.Context()))
		require.Equal(t, kept, f.Count("outbox_sent"))
	}
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	require.Zero(t, f.Count("oncebox_settings WHERE kept_set"), "it has no setting")

	short, log := f.beside(outbox.Config{Retention: 14 * day})
	long, _ := f.beside(outbox.Config{Retention: 30 * day})
	clean(short, 3)
	clean(f.Store, 3) // its default would be a week
	require.NoError(t, long.Upkeep().EnsurePartitions(t.Context()))
	require.NotContains(t, log.String(), "WARN")
	clean(short, 3)
	require.Contains(t, log.String(), "database=720h0m0s config=336h0m0s")
	require.NoError(t, short.Upkeep().SetRetention(t.Context(), operator.By{Actor: "ann", Reason: "the disk is small"}))
	require.NoError(t, long.Upkeep().EnsurePartitions(t.Context())) // it still runs
	for _, text := range []string{
		"from not set, archived: false to 336:00:00, archived: false: %",
		"from 336:00:00, archived: false to 720:00:00, archived: false: %",
		"from 720:00:00, archived: false to 336:00:00, archived: false: the disk is small",
	} {
		require.Positive(t, f.Count("oncebox_audit WHERE reason LIKE '"+text+"'"), text)
	}
	require.Equal(t, 4, f.Count("oncebox_audit"))
	require.Equal(t, 3, f.Count("oncebox_audit WHERE actor = 'Config.Retention'"))
	require.Equal(t, 1, f.Count("oncebox_settings WHERE kept = '30 days'"))

	forever, _ := f.beside(outbox.Config{Retention: outbox.KeepForever})
	require.NoError(t, forever.Upkeep().EnsurePartitions(t.Context()))
	require.NoError(t, long.Upkeep().EnsurePartitions(t.Context()))
	require.Equal(t, 1, f.Count("oncebox_settings WHERE kept_set AND kept IS NULL"))
	require.Equal(t, 1, f.Count("oncebox_audit WHERE reason LIKE '% to for ever, archived: false: %'"))
}

// A process that archives and has no retention of its own enters none.
func TestArchiveEntersNoRetention(t *testing.T) {
	f := newFixture(t, &outbox.Config{BeforeDrop: func(context.Context, outbox.Partition) error { return nil }})
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	require.Equal(t, 1, f.Count("oncebox_settings WHERE archived AND NOT kept_set"))
	day, _ := f.beside(outbox.Config{Retention: 24 * time.Hour})
	require.NoError(t, day.Upkeep().EnsurePartitions(t.Context()))
	require.Equal(t, 1, f.Count("oncebox_settings WHERE archived AND kept_set AND kept = '1 day'"))
	require.Equal(t, 1, f.Count("oncebox_audit WHERE reason LIKE 'from not set, archived: true to 24:00:00, archived: true: %'"))
}

// Published rows are kept while it is unknown whether the database's rule is to delete them.
func TestRetentionThatCannotBeReadDeletesNothing(t *testing.T) {
	f := newFixture(t, &outbox.Config{Retention: outbox.NoRetention})
	f.Exec("ALTER TABLE oncebox_settings RENAME COLUMN kept TO elsewhere")
	require.Error(t, f.Upkeep().EnsurePartitions(t.Context()))
	f.Record("a", "a1")
	f.Settle()
	require.Equal(t, 1, f.Count("outbox_sent"))
	f.Exec("ALTER TABLE oncebox_settings RENAME COLUMN elsewhere TO kept")
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	f.Record("a", "a2")
	f.Settle()
	require.Equal(t, 1, f.Count("outbox_sent"))
}

// Whether a settle archives is the database's rule too.
func TestSettleFollowsTheRetentionOfTheDatabase(t *testing.T) {
	for name, c := range map[string]struct {
		first, second time.Duration
		kept          int
	}{
		"kept":         {outbox.DefaultRetention, outbox.NoRetention, 1},
		"kept by one":  {outbox.NoRetention, outbox.DefaultRetention, 1},
		"deleted":      {outbox.NoRetention, outbox.NoRetention, 0},
		"no other one": {outbox.NoRetention, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, &outbox.Config{Retention: c.first})
			require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
			f.Store, _ = f.beside(outbox.Config{Retention: c.second, Source: "test"})
			require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
			f.Record("a", "a1")
			f.Settle()
			require.Equal(t, c.kept, f.Count("outbox_sent"))
		})
	}
}
