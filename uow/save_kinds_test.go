package uow_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// versioned is an aggregate with fields of one kind, and loose the same without a version.
type versioned[F any] struct {
	bun.BaseModel  `bun:"table:kinds,alias:k"`
	event.Recorder `bun:"-"`

	ID      string `bun:",pk"`
	Version int64
	Fields  F `bun:"embed:"`
}

func (*versioned[F]) AggregateType() string     { return "kind" }
func (a *versioned[F]) AggregateID() string     { return a.ID }
func (a *versioned[F]) AggregateVersion() int64 { return a.Version }

type loose[F any] struct {
	bun.BaseModel  `bun:"table:kinds,alias:k"`
	event.Recorder `bun:"-"`

	ID     string `bun:",pk"`
	Fields F      `bun:"embed:"`
}

func (*loose[F]) AggregateType() string   { return "kind" }
func (a *loose[F]) AggregateID() string   { return a.ID }
func (*loose[F]) AggregateVersion() int64 { return 0 }

// kindOfField saves a full and an empty value of fields, by Save and by bun, inserted and updated, and compares the rows.
type kindOfField struct {
	columns string
	run     func(t *testing.T, s *saver)
}

func fields[F any](columns string, full F) kindOfField {
	var empty F
	return kindOfField{columns, func(t *testing.T, s *saver) {
		for name, steps := range map[string][]F{"empty, then full": {empty, full}, "full, then empty": {full, empty}} {
			t.Run(name, func(t *testing.T) {
				defer s.empty(t)
				a, b := &versioned[F]{ID: "saved"}, &versioned[F]{ID: "by bun"}
				for i, values := range steps {
					a.Fields, b.Fields = values, values
					a.Record(changed{"x"})
					b.Version++
					if !s.compare(t, i > 0, a, b, a.ID, b.ID) {
						break
					}
					require.Equal(t, b.Fields, a.Fields, "what the models hold afterwards")
				}
			})
			t.Run(name+", without a version", func(t *testing.T) {
				defer s.empty(t)
				a, b := &loose[F]{ID: "saved"}, &loose[F]{ID: "by bun"}
				for i, values := range steps {
					a.Fields, b.Fields = values, values
					if !s.compare(t, i > 0, a, b, a.ID, b.ID) {
						break
					}
				}
			})
		}
	}}
}

func (s *saver) empty(t *testing.T) {
	t.Helper()
	_, err := s.Exec("TRUNCATE kinds")
	require.NoError(t, err)
}

// compare stores one by Save and the other one by bun. It returns false if both refuse.
func (s *saver) compare(t *testing.T, update bool, saved event.Aggregate, byBun any, id, idByBun string) bool {
	t.Helper()
	s.rewind(t)
	err := s.save(t.Context(), saved)
	s.rewind(t)
	var want error
	if update {
		_, want = s.pool.NewUpdate().Model(byBun).WherePK().Exec(t.Context())
	} else {
		_, want = s.pool.NewInsert().Model(byBun).Exec(t.Context())
	}
	if want != nil && strings.HasPrefix(want.Error(), "bun: empty SET") {
		want = nil // it has nothing to do, and nor has Save
	}
	require.Equal(t, want == nil, err == nil, "bun says %v, and Save says %v", want, err)
	const row = "SELECT (to_jsonb(k) - 'id')::text FROM kinds k WHERE id = ?"
	require.Equal(t, lines(t, s, row, idByBun), lines(t, s, row, id), "update: %t", update)
	return err == nil
}

// rewind sets the sequences of the table back, so that they return the same numbers again.
func (s *saver) rewind(t *testing.T) {
	t.Helper()
	_, err := s.Exec(`SELECT setval(pg_get_serial_sequence('kinds', attname), 100) FROM pg_attribute
		WHERE attrelid = 'kinds'::regclass AND attnum > 0 AND pg_get_serial_sequence('kinds', attname) IS NOT NULL`)
	require.NoError(t, err)
}

// The stored values must not depend on whether bun or the unit wrote the statement.
func TestSaveStoresWhatBunStores(t *testing.T) {
	pools := map[string]func(*testing.T, *service) *bun.DB{
		"pipelined": func(t *testing.T, s *service) *bun.DB { return pipelined(t, s.DSN) },
		"plain":     func(_ *testing.T, s *service) *bun.DB { return s.DB.DB },
	}
	for pool, open := range pools {
		t.Run(pool, func(t *testing.T) {
			s := newSaver(t, nil, func(s *service) *bun.DB { return open(t, s) })
			_, err := s.Exec(`CREATE TYPE level AS ENUM ('low', 'high');
				CREATE DOMAIN positive AS int CHECK (VALUE >= 0)`)
			require.NoError(t, err)
			for name, kind := range eachKindOfField {
				t.Run(name, func(t *testing.T) {
					columns := "id text PRIMARY KEY, version bigint NOT NULL DEFAULT 0"
					if kind.columns != "" {
						columns += ", " + kind.columns
					}
					_, err := s.Exec("DROP TABLE IF EXISTS kinds; CREATE TABLE kinds (" + columns + ")")
					require.NoError(t, err)
					own := open(t, s.service) // statements are prepared for the columns as they were
					c := *s
					c.service = &service{DB: s.DB, units: s.manager(nil, own, s.batch)}
					c.pool = own
					kind.run(t, &c)
				})
			}
		})
	}
}
