package pgsql_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// modes are the two ways in which every statement of the module is sent.
func modes() map[string]*pgsql.Runner {
	return map[string]*pgsql.Runner{"prepared": pgsql.New("", false), "pooler": pgsql.New("", true)}
}

// The tables rest on these: whole batches travel as arrays, one per column, and come out as they went in.
func TestArrayParameters(t *testing.T) {
	db := pgtest.Open(t).DB
	db.SetMaxOpenConns(1) // one session, so that this holds for all that follows
	_, err := db.ExecContext(t.Context(), "SET TIME ZONE 'UTC'")
	require.NoError(t, err)
	at := time.Date(2026, 11, 21, 9, 30, 0, 123456789, time.UTC)
	id := uuid.MustParse("01932f5e-7c00-7000-8000-000000000001")
	a, number, small := "a", int64(5), int16(6)
	for _, c := range []struct {
		as    string
		value any
		want  string
	}{
		{"text[]", []string{`a,b"c\{}`, "", "NULL", "ü✓", " x "}, `{"a,b\"c\\{}","","NULL",ü✓," x "}`},
		{"text[]", []*string{&a, nil}, `{a,NULL}`},
		{"text[]", []string{}, `{}`},
		{"bigint[]", []int64{1, -2, 1 << 62}, `{1,-2,4611686018427387904}`},
		{"bigint[]", []*int64{&number, nil}, `{5,NULL}`},
		{"int[]", []int32{1, -2}, `{1,-2}`},
		{"smallint[]", []int16{1, 32767}, `{1,32767}`},
		{"smallint[]", []*int16{&small, nil}, `{6,NULL}`},
		{"boolean[]", []bool{true, false}, `{t,f}`},
		// Truncated to microseconds, never rounded up.
		{"timestamptz[]", []time.Time{at, at.In(time.FixedZone("", 3600))}, `{"2026-11-21 09:30:00.123456+00","2026-11-21 09:30:00.123456+00"}`},
		{"timestamptz[]", []*time.Time{&at, nil}, `{"2026-11-21 09:30:00.123456+00",NULL}`},
		{"timestamptz[]", []pgtype.Timestamptz{{InfinityModifier: pgtype.Infinity, Valid: true}, {}}, `{infinity,NULL}`},
		{"bytea[]", [][]byte{{0, 1, 255}, {}, []byte(`\x00`), nil}, `{"\\x0001ff","\\x","\\x5c783030",NULL}`},
		{"json[]", []string{`{"a":"b,c\"d","n":9007199254740993}`, `{}`}, `{"{\"a\":\"b,c\\\"d\",\"n\":9007199254740993}","{}"}`},
		{"json[]", []json.RawMessage{json.RawMessage(`{"a":1}`)}, `{"{\"a\":1}"}`},
		{"json[]", []*string{nil}, `{NULL}`},
		{"uuid[]", []string{id.String()}, `{01932f5e-7c00-7000-8000-000000000001}`},
		{"uuid[]", []pgtype.UUID{{Bytes: id, Valid: true}, {}}, `{01932f5e-7c00-7000-8000-000000000001,NULL}`},
		{"interval[]", []time.Duration{1500 * time.Millisecond}, `{00:00:01.5}`},
	} {
		for mode, run := range modes() {
			t.Run(fmt.Sprintf("%s from %T %s", c.as, c.value, mode), func(t *testing.T) {
				var got sql.NullString
				query := "SELECT ($1::" + c.as + ")::text"
				err := run.QueryRow(t.Context(), db, query, []any{c.value}, &got)
				require.NoError(t, err)
				require.Equal(t, c.want, got.String)
			})
		}
	}
}

// A nil slice is NULL and not an empty array: "= ANY(NULL)" is never true, nor is "<> ALL(NULL)".
func TestNilSliceIsNull(t *testing.T) {
	db := pgtest.Open(t).DB
	for mode, run := range modes() {
		t.Run(mode, func(t *testing.T) {
			var null bool
			require.NoError(t, run.QueryRow(t.Context(), db, "SELECT $1::text[] IS NULL", []any{[]string(nil)}, &null))
			require.True(t, null)
		})
	}
}

func TestScalarParameters(t *testing.T) {
	db := pgtest.Open(t).DB
	for mode, run := range modes() {
		t.Run(mode, func(t *testing.T) {
			var text, doc, id string
			var bytes, none []byte
			var span float64
			var when, never sql.NullTime
			at := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
			err := run.QueryRow(t.Context(), db,
				`SELECT $1::text, $2::json, $3::uuid, $4::bytea, $5::bytea, extract(epoch FROM $6::interval), $7::timestamptz, $8::timestamptz`,
				[]any{`it's "\`, json.RawMessage(`{"a":1}`), uuid.Nil, []byte{0, 255}, []byte(nil), 1500 * time.Millisecond, at, (*time.Time)(nil)},
				&text, &doc, &id, &bytes, &none, &span, &when, &never)
			require.NoError(t, err)
			require.Equal(t, `it's "\`, text)
			require.Equal(t, `{"a":1}`, doc)
			require.Equal(t, uuid.Nil.String(), id)
			require.Equal(t, []byte{0, 255}, bytes)
			require.Nil(t, none)
			require.InDelta(t, 1.5, span, 0)
			require.True(t, at.Equal(when.Time))
			require.False(t, never.Valid)
		})
	}
}
