package uow_test

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/schema"
)

type (
	grade    string
	money    struct{ cents int64 } //nolint:recvcheck // as database/sql wants it
	upper    string
	never    string
	document struct {
		Name string         `json:"name"`
		Tags []string       `json:"tags"`
		More map[string]any `json:"more"`
	}
	address struct {
		Street string `bun:",nullzero,default:'nowhere'"`
		Number *int
	}
	base struct {
		Created time.Time `bun:",nullzero,default:'2020-01-01'"`
		Note    string
	}
	owner struct {
		ID int64 `bun:",pk"`
	}
)

func (m money) Value() (driver.Value, error) { return m.cents, nil }

func (m *money) Scan(src any) error {
	m.cents, _ = src.(int64)
	return nil
}

func (u upper) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	return append(gen.Append(append(b, "upper("...), string(u)), ')'), nil
}

func (never) AppendQuery(_ schema.QueryGen, b []byte) ([]byte, error) {
	return append(b, "DEFAULT"...), nil
}

var eachKindOfField = map[string]kindOfField{
	"text":           fields("v text", struct{ V string }{`it's "x" \ ä`}),
	"integer":        fields("v int", struct{ V int }{-7}),
	"unsigned":       fields("v numeric", struct{ V uint64 }{1 << 63}),
	"boolean":        fields("v boolean", struct{ V bool }{true}),
	"float":          fields("v float8", struct{ V float64 }{-1.25}),
	"bytes":          fields("v bytea", struct{ V []byte }{[]byte{0, '\'', '\\', 255}}),
	"array of bytes": fields("v bytea", struct{ V [3]byte }{[3]byte{1, 2, 3}}),
	"time":           fields("v timestamptz", struct{ V time.Time }{time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)}),
	"duration":       fields("v bigint", struct{ V time.Duration }{time.Hour}),
	"uuid":           fields("v uuid", struct{ V uuid.UUID }{uuid.MustParse("0198a8c0-0000-7000-8000-000000000001")}),
	"enum": fields("v level DEFAULT 'low'", struct {
		V grade `bun:",nullzero"`
	}{"high"}),
	"address of a net": fields("v inet, w cidr", struct {
		V netip.Addr `bun:",nullzero"`
		W net.IPNet  `bun:",nullzero"`
	}{netip.MustParseAddr("10.0.0.1"), net.IPNet{IP: net.IP{10, 0, 0, 0}, Mask: net.CIDRMask(8, 32)}}),
	"pointers": fields("v int, w text, x timestamptz, y boolean", struct {
		V *int
		W *string
		X *time.Time
		Y *bool
	}{new(7), new("x"), new(time.Unix(1, 0).UTC()), new(true)}),
	"pointers, default": fields("v int DEFAULT 5, w text DEFAULT 'none', x timestamptz DEFAULT '2020-01-01'", struct {
		V *int
		W *string
		X *time.Time
	}{new(0), new(""), new(time.Time)}),

	"nullzero": fields("v text, w int, x timestamptz, y boolean", struct {
		V string    `bun:",nullzero"`
		W int       `bun:",nullzero"`
		X time.Time `bun:",nullzero"`
		Y bool      `bun:",nullzero"`
	}{"x", 1, time.Unix(1, 0).UTC(), true}),
	"nullzero, default": fields("v text DEFAULT 'open', w timestamptz DEFAULT '2020-01-01'", struct {
		V string    `bun:",nullzero,default:'open'"`
		W time.Time `bun:",nullzero,default:'2020-01-01'"`
	}{"x", time.Unix(1, 0).UTC()}),
	"nullzero, notnull, default": fields("v text NOT NULL DEFAULT 'open', w int NOT NULL DEFAULT 5", struct {
		V string `bun:",nullzero,notnull,default:'open'"`
		W int    `bun:",nullzero,notnull"`
	}{"x", 1}),
	"nullzero, default unknown": fields("v text DEFAULT 'open'", struct {
		V string `bun:",nullzero"`
	}{"x"}),
	"default": fields("v text DEFAULT 'open', w int DEFAULT 5, x boolean DEFAULT true", struct {
		V string `bun:",default:'open'"`
		W int    `bun:",default:5"`
		X bool   `bun:",default:true"`
	}{"x", 1, true}),
	"default, notnull": fields("v int NOT NULL DEFAULT 5", struct {
		V int `bun:",notnull,default:5"`
	}{1}),
	"notnull without a value": fields("v text NOT NULL", struct{ V *string }{new("x")}),
	"skipupdate": fields("v text, w int", struct {
		V string `bun:",skipupdate"`
		W int
	}{"x", 1}),
	"skipupdate, default": fields("v text DEFAULT 'open', w int", struct {
		V string `bun:",skipupdate,nullzero,default:'open'"`
		W int
	}{"x", 1}),
	"all skipupdate": fields("v text, w int", struct {
		V string `bun:",skipupdate"`
		W int    `bun:",skipupdate"`
	}{"x", 1}),
	"all skipupdate, default": fields("v text DEFAULT 'open'", struct {
		V string `bun:",skipupdate,nullzero,default:'open'"`
	}{"x"}),
	"nothing": fields("", struct{}{}),
	"scanonly": fields("v text, w text GENERATED ALWAYS AS (v || v) STORED", struct {
		V string
		W string `bun:",scanonly"`
	}{V: "x"}),
	"left out": fields("v text", struct {
		V string
		W chan int `bun:"-"`
	}{V: "x"}),
	"another column": fields(`"a column" text, "order" int`, struct {
		V string `bun:"column:a column"`
		W int    `bun:"order"`
	}{"x", 1}),
	"another name": fields("v text", struct {
		V string `bun:",alt:other"`
	}{"x"}),
	"soft delete": fields("v text, deleted_at timestamptz", struct {
		V         string
		DeletedAt time.Time `bun:",soft_delete,nullzero"`
	}{V: "x"}),
	"unique": fields("v text UNIQUE", struct {
		V string `bun:",unique,nullzero"`
	}{}),

	"json": fields("v json, w jsonb", struct {
		V document `bun:",type:json"`
		W document `bun:",type:jsonb"`
	}{document{Name: "it's"}, document{"n", []string{`"`}, map[string]any{"a": 1.5}}}),
	"struct":   fields("v jsonb", struct{ V document }{document{"n", nil, map[string]any{"a": "b"}}}),
	"map":      fields("v jsonb", struct{ V map[string]any }{map[string]any{"a'": "b\\", "n": 1.0}}),
	"slice":    fields("v jsonb", struct{ V []document }{[]document{{Name: "x"}}}),
	"raw json": fields("v jsonb", struct{ V json.RawMessage }{json.RawMessage(`{"a": "it's"}`)}),
	"json numbers": fields("v jsonb, w jsonb", struct {
		V int `bun:",type:jsonb"`
		W any `bun:",type:jsonb"`
	}{1, 2.5}),
	"json, nullzero": fields("v jsonb DEFAULT '{}'", struct {
		V map[string]string `bun:",type:jsonb,nullzero,default:'{}'"`
	}{map[string]string{"a": "b"}}),
	"json of pointer": fields("v jsonb DEFAULT '{}'", struct {
		V *document `bun:",type:jsonb"`
	}{&document{Name: "x"}}),
	"any": fields("v text", struct{ V any }{"x"}),

	"arrays": fields("v text[], w bigint[], x float8[], y boolean[]", struct {
		V []string  `bun:",array"`
		W []int64   `bun:",array"`
		X []float64 `bun:",array"`
		Y []bool    `bun:"type:boolean[]"`
	}{[]string{`a"b\`, "it's", ""}, []int64{-1}, []float64{1.5}, []bool{true}}),
	"arrays, empty": fields("v text[] DEFAULT '{a}'", struct {
		V []string `bun:",array"`
	}{[]string{}}),
	"arrays, nullzero": fields("v text[] DEFAULT '{a}'", struct {
		V []string `bun:",array,nullzero"`
	}{[]string{"b"}}),
	"arrays of times": fields("v timestamptz[]", struct {
		V []time.Time `bun:",array"`
	}{[]time.Time{time.Unix(1, 0).UTC()}}),
	"arrays of arrays": fields("v int[][]", struct {
		V [][]int `bun:",array"`
	}{[][]int{{1, 2}, {3, 4}}}),
	"arrays of enums": fields("v level[]", struct {
		V []grade `bun:",array"`
	}{[]grade{"low", "high"}}),
	"hstore": fields("v text", struct {
		V map[string]string `bun:",hstore"`
	}{map[string]string{`a"'`: `b\`}}),
	"ranges": fields("v int4range, w tstzrange", struct {
		V pgdialect.Range[int]
		W pgdialect.Range[time.Time]
	}{pgdialect.NewRange(1, 5), pgdialect.NewRange(time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC())}),
	"multiranges": fields("v int4multirange", struct {
		V pgdialect.MultiRange[int] `bun:",multirange"`
	}{pgdialect.MultiRange[int]{pgdialect.NewRange(1, 5)}}),
	"msgpack": fields("v bytea", struct {
		V document `bun:",msgpack"`
	}{document{Name: "x"}}),

	"valuer": fields("v bigint, w text", struct {
		V money
		W valued
	}{money{-5}, valued{"mine"}}),
	"valuer, nullzero": fields("v bigint DEFAULT 5", struct {
		V money `bun:",nullzero"`
	}{money{1}}),
	"valuer by pointer": fields("v bigint DEFAULT 5", struct{ V *money }{&money{0}}),
	"appender":          fields("v text", struct{ V upper }{"it's"}),
	"appender, nullzero": fields("v text DEFAULT 'low'", struct {
		V upper `bun:",nullzero"`
	}{"x"}),
	"appender of DEFAULT": fields("v text DEFAULT 'low', w int", struct {
		V never
		W int
	}{"x", 7}),
	"null types": fields("v text, w bigint, x boolean, y float8, z timestamptz, u text", struct {
		V sql.NullString
		W sql.NullInt64
		X sql.NullBool
		Y sql.NullFloat64
		Z sql.NullTime
		U sql.Null[string]
	}{
		sql.NullString{Valid: true}, sql.NullInt64{Valid: true}, sql.NullBool{Valid: true},
		sql.NullFloat64{Float64: 1.5, Valid: true}, sql.NullTime{Time: time.Unix(1, 0).UTC(), Valid: true}, sql.Null[string]{V: "x", Valid: true},
	}),
	"null types, default": fields("v text DEFAULT 'none', w bigint DEFAULT 5", struct {
		V sql.NullString `bun:",nullzero,default:'none'"`
		W sql.NullInt64  `bun:",default:5"`
	}{sql.NullString{Valid: true}, sql.NullInt64{Valid: true}}),
	"null time": fields("v timestamptz DEFAULT '2020-01-01', w timestamptz DEFAULT '2020-01-01'", struct {
		V bun.NullTime
		W bun.NullTime `bun:",nullzero"`
	}{bun.NullTime{Time: time.Unix(1, 0).UTC()}, bun.NullTime{Time: time.Unix(1, 0).UTC()}}),

	"float as integer": fields("v int, w int", struct {
		V float64 `bun:",type:int"`
		W float64 `bun:",type:int"`
	}{1.5, 2}),
	"boolean as text": fields("v text", struct {
		V bool `bun:",type:text"`
	}{true}),
	"boolean as integer": fields("v int", struct{ V bool }{true}),
	"integer as text": fields("v text, w varchar(5)", struct {
		V int `bun:",type:text"`
		W int16
	}{42, -7}),
	"integer as boolean":  fields("v boolean", struct{ V int }{1}),
	"integer as jsonb":    fields("v jsonb", struct{ V int }{1}),
	"integer as interval": fields("v interval", struct{ V time.Duration }{time.Second}),
	"integer as bytea":    fields("v bytea", struct{ V int }{1}),
	"float as numeric": fields("v numeric(6,2), w real", struct {
		V float64
		W float32
	}{1234.567, 0.1}),
	"float below zero":    fields("v float8", struct{ V float64 }{-1e-12}),
	"float of 309 digits": fields("v float8", struct{ V float64 }{-1e308}),
	"float without end":   fields("v float8", struct{ V sql.NullFloat64 }{sql.NullFloat64{Float64: math.Inf(-1), Valid: true}}),
	"text as numeric": fields("v numeric(6,2)", struct {
		V string `bun:",type:numeric,nullzero"`
	}{"1.239"}),
	"text that is short": fields("v varchar(3), w char(5)", struct{ V, W string }{"abcd", "x"}),
	"integer too large":  fields("v smallint", struct{ V int64 }{1 << 40}),
	"time as date": fields("v date", struct {
		V time.Time `bun:",type:date,nullzero"`
	}{time.Date(2026, 1, 2, 23, 0, 0, 0, time.UTC)}),
	"domain": fields("v positive", struct{ V int }{1}),

	"embedded": fields("street text DEFAULT 'nowhere', number int", struct {
		A address `bun:"embed:"`
	}{address{"Main", new(1)}}),
	"embedded with prefix": fields("a_street text DEFAULT 'nowhere', a_number int DEFAULT 3", struct {
		A address `bun:"embed:a_"`
	}{address{"Main", new(1)}}),
	"embedded by a pointer": fields("a_street text DEFAULT 'nowhere', a_number int DEFAULT 3", struct {
		A *address `bun:"embed:a_"`
	}{&address{"Main", new(1)}}),
	"anonymous": fields("created timestamptz DEFAULT '2020-01-01', note text", struct{ base }{base{time.Unix(1, 0).UTC(), "x"}}),
	"relation": fields("owner_id bigint", struct {
		OwnerID int64  `bun:",nullzero"`
		Owner   *owner `bun:"rel:belongs-to,join:owner_id=id"`
	}{7, &owner{7}}),
	"autoincrement": fields("v bigserial", struct {
		V int64 `bun:",autoincrement"`
	}{7}),
	"identity": fields("v bigint GENERATED BY DEFAULT AS IDENTITY", struct {
		V int64 `bun:",identity"`
	}{7}),
	"identity, nullzero": fields("v bigint GENERATED ALWAYS AS IDENTITY, w text", struct {
		V int64 `bun:",identity,nullzero,skipupdate"`
		W string
	}{W: "x"}),
}
