package uow_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// shelved are rows that are deleted softly, and are read through a view that does not show those.
type shelved struct {
	bun.BaseModel  `bun:"table:shelved,select:shelved_view"`
	event.Recorder `bun:"-"`

	ID        string `bun:",pk"`
	Version   int64
	DeletedAt time.Time `bun:",soft_delete,nullzero"`
}

func (*shelved) AggregateType() string     { return "shelved" }
func (a *shelved) AggregateID() string     { return a.ID }
func (a *shelved) AggregateVersion() int64 { return a.Version }
func (a *shelved) deleted(at time.Time)    { a.DeletedAt = at }

// shelvedByBun has a hook, so bun writes it.
type shelvedByBun struct {
	shelved `bun:",extend"`
}

func (*shelvedByBun) BeforeAppendModel(context.Context, bun.Query) error { return nil }

// shelvedNever is not deleted where it has the time zero.
type shelvedNever struct {
	bun.BaseModel  `bun:"table:shelved"`
	event.Recorder `bun:"-"`

	ID        string `bun:",pk"`
	Version   int64
	DeletedAt time.Time `bun:",soft_delete"`
}

func (*shelvedNever) AggregateType() string     { return "shelved" }
func (a *shelvedNever) AggregateID() string     { return a.ID }
func (a *shelvedNever) AggregateVersion() int64 { return a.Version }
func (a *shelvedNever) deleted(at time.Time)    { a.DeletedAt = at }

// deletable is an aggregate that is deleted softly.
type deletable interface {
	event.Aggregate
	Record(e event.Event)
	deleted(at time.Time)
}

func TestSaveOfWhatIsDeletedSoftly(t *testing.T) {
	models := map[string]func(id string, version int64) deletable{
		"null":     func(id string, version int64) deletable { return &shelved{ID: id, Version: version} },
		"by bun":   func(id string, version int64) deletable { return &shelvedByBun{shelved{ID: id, Version: version}} },
		"not null": func(id string, version int64) deletable { return &shelvedNever{ID: id, Version: version} },
	}
	for name, model := range models {
		t.Run(name, func(t *testing.T) {
			eachPool(t, func(t *testing.T, s *saver) {
				_, err := s.Exec(`CREATE TABLE shelved (id text PRIMARY KEY, version bigint, deleted_at timestamptz);
					CREATE VIEW shelved_view AS SELECT * FROM shelved WHERE deleted_at IS NULL`)
				require.NoError(t, err)
				recorded := func(version int64) deletable {
					a := model("a", version)
					a.Record(changed{"x"})
					return a
				}
				a := recorded(0)
				require.NoError(t, s.save(t.Context(), a))
				a.deleted(time.Unix(1, 0))
				a.Record(changed{"deleted"})
				require.NoError(t, s.save(t.Context(), a))

				tries := 0
				err = s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
					tries++
					return u.Save(ctx, recorded(0))
				})
				require.ErrorIs(t, err, uow.ErrExists)
				require.ErrorContains(t, err, "shelved a exists already, with version 2, and is deleted softly")
				require.Equal(t, 1, tries, "it would be made again each time")
				err = s.save(t.Context(), recorded(1))
				require.ErrorIs(t, err, uow.ErrConflict)
				require.ErrorContains(t, err, "expected version 1, found 2, which is deleted softly")

				a.deleted(time.Time{})
				a.Record(changed{"restored"})
				require.NoError(t, s.save(t.Context(), a))
				require.EqualValues(t, 3, a.AggregateVersion())
				require.ErrorContains(t, s.save(t.Context(), recorded(0)), "exists already, with version 3: a new aggregate")
				require.Equal(t, []string{"a 3 t"}, lines(t, s,
					"SELECT concat_ws(' ', id, version, coalesce(deleted_at, '-infinity') < '1970-01-01') FROM shelved"))
			})
		})
	}
}

// many has a key of several columns, one of which is made by the database, and a version that bun's own updates leave alone.
type many struct {
	bun.BaseModel  `bun:"table:?shop.many"`
	event.Recorder `bun:"-"`

	Region  int       `bun:",pk"`
	ID      uuid.UUID `bun:",pk,nullzero,type:uuid,default:gen_random_uuid()"`
	Version int32     `bun:",skipupdate"`
	A, B, C *int
	D, E, F *string
}

func (*many) AggregateType() string     { return "many" }
func (a *many) AggregateID() string     { return fmt.Sprint(a.Region, " ", a.ID) }
func (a *many) AggregateVersion() int64 { return int64(a.Version) }

// manyByBun has a hook, so bun writes it.
type manyByBun struct {
	many `bun:",extend"`
}

func (*manyByBun) BeforeAppendModel(context.Context, bun.Query) error { return nil }

// There are more combinations of empty fields than statements are prepared for one type.
func TestSaveOfManyOptionalFields(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		_, err := s.Exec(`CREATE TABLE many (region int, id uuid DEFAULT gen_random_uuid(), version int,
			a int, b int DEFAULT 2, c int, d text, e text DEFAULT 'e', f text, PRIMARY KEY (region, id))`)
		require.NoError(t, err)
		s.pool = s.pool.WithNamedArg("shop", bun.Safe(s.Schema))
		s.units = s.manager(nil, s.pool, s.batch)
		byBun := &manyByBun{many{Region: 2}}
		saved := &many{Region: 1}
		for set := range 64 {
			for _, a := range []*many{saved, &byBun.many} {
				a.A, a.B, a.C, a.D, a.E, a.F = nil, nil, nil, nil, nil, nil
				for i, field := range []**int{&a.A, &a.B, &a.C} {
					if set&(1<<i) != 0 {
						*field = new(set)
					}
				}
				for i, field := range []**string{&a.D, &a.E, &a.F} {
					if set&(8<<i) != 0 {
						*field = new("it's")
					}
				}
				a.Record(changed{"x"})
			}
			require.NoError(t, s.save(t.Context(), saved))
			require.NoError(t, s.save(t.Context(), byBun))
			require.Len(t, lines(t, s, "SELECT DISTINCT (to_jsonb(m) - 'id' - 'region')::text FROM many m WHERE version = ?", set+1), 1)
			require.Equal(t, []string{"2"}, lines(t, s, "SELECT count(*) FROM many WHERE version = ?", set+1))
		}
	})
}

// A nil pointer costs no round trip: the events leave with COMMIT.
func TestSaveOfAnEmptyFieldIsPipelined(t *testing.T) {
	s := newSaver(t, nil, func(s *service) *bun.DB { return pipelined(t, s.DSN) })
	_, err := s.Exec("CREATE TABLE kinds (id text PRIMARY KEY, version bigint, v int DEFAULT 5)")
	require.NoError(t, err)
	type optional struct{ V *int }
	a := &versioned[optional]{ID: "a", Fields: optional{new(1)}}
	a.Record(changed{"x"})
	require.NoError(t, s.save(t.Context(), a))
	a.Fields.V = nil
	a.Record(changed{"x"})
	require.NoError(t, s.save(t.Context(), a))
	require.Equal(t, 2, s.batch.batches)
	require.Equal(t, []string{"5"}, lines(t, s, "SELECT v FROM kinds"))
}

// tag has nothing but its key.
type tag struct {
	bun.BaseModel  `bun:"table:tags"`
	event.Recorder `bun:"-"`

	Name  string `bun:",pk"`
	Group string `bun:",pk"`
}

func (*tag) AggregateType() string   { return "tag" }
func (a *tag) AggregateID() string   { return a.Name }
func (*tag) AggregateVersion() int64 { return 0 }

func TestSaveOfNothingButAKey(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		_, err := s.Exec(`CREATE TABLE tags (name text, "group" text, PRIMARY KEY (name, "group"))`)
		require.NoError(t, err)
		for range 2 {
			a, b := &tag{Name: "a", Group: "x"}, &tag{Name: "b", Group: "x"}
			a.Record(changed{"tagged"})
			require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error { return u.Save(ctx, a, b) }))
		}
		require.Equal(t, []string{"a", "b"}, lines(t, s, "SELECT name FROM tags ORDER BY name"))
		require.Len(t, s.sunk(t), 2)
	})
}

func TestSaveRefusesWhatBunCannotStore(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		a := &versioned[struct {
			Done chan int
			Fn   func()
		}]{ID: "a"}
		a.Record(changed{"x"})
		err := s.save(t.Context(), a)
		require.ErrorContains(t, err, `.Done is a chan int, which bun cannot store: tag it bun:"-"`)
		require.ErrorContains(t, err, `.Fn is a func(), which bun cannot store`)
	})
}
