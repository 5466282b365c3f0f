package pgsql

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// prepared is a statement that a connection has prepared.
type prepared struct {
	*pgconn.StatementDescription

	formats []int16 // of the columns of its result
}

func newPrepared(described *pgconn.StatementDescription, types *pgtype.Map) prepared {
	p := prepared{described, make([]int16, len(described.Fields))}
	for i := range described.Fields {
		p.formats[i] = types.FormatCodeForOID(described.Fields[i].DataTypeOID)
	}
	return p
}

// roundTrip is what is sent at once: prepared statements, BEGIN before them and COMMIT behind them included. It does what [pgx.Conn.SendBatch] does,
// without asking the server what the statements return: it has said so when they were prepared.
type roundTrip struct {
	conn   *conn
	batch  pgconn.Batch
	err    error  // of the first parameter that cannot be encoded
	result Result // that is being read
}

// add adds a prepared statement.
func (t *roundTrip) add(text string, args []any) {
	if t.err != nil {
		return
	}
	p, build := t.conn.prepared[text], &t.conn.build
	if t.err = build.Build(t.conn.Conn().TypeMap(), p.StatementDescription, args); t.err == nil {
		t.batch.ExecStatement(p.StatementDescription, build.ParamValues, build.ParamFormats, p.formats)
	}
}

// make sends what was added, and reads the results of b, which BEGIN precedes and COMMIT follows. last is the answer to the last statement of b. It
// sends nothing if a parameter cannot be encoded.
func (t *roundTrip) make(ctx context.Context, b *Batch, begins, commits bool) (last pgconn.CommandTag, err error) {
	if t.err != nil {
		return last, t.err
	}
	if tracer := t.conn.tracer; tracer != nil {
		ctx = tracer.TraceBatchStart(ctx, t.conn.Conn(), pgx.TraceBatchStartData{Batch: b.forPgx()})
		defer func() { tracer.TraceBatchEnd(ctx, t.conn.Conn(), pgx.TraceBatchEndData{Err: err}) }()
	}
	results := t.conn.Conn().PgConn().ExecBatch(ctx, &t.batch)
	// The server has answered all, or has nothing more to say, only behind the last message: Close reads up to it.
	defer func() {
		if closed := results.Close(); err == nil {
			err = closed
		}
	}()
	if begins {
		if _, err := t.next(results, nil); err != nil {
			return last, err
		}
	}
	for i := range b.statements {
		if last, err = t.next(results, b.statements[i].read); err != nil {
			return last, err
		}
	}
	if commits {
		return last, committed(t.next(results, nil))
	}
	return last, nil
}

// errNoResult is replaced by the error for which there is no result.
var errNoResult = errors.New("pgsql: the server has not answered the statement")

// next reads one result.
func (t *roundTrip) next(results *pgconn.MultiResultReader, read func(*Result) error) (pgconn.CommandTag, error) {
	if !results.NextResult() {
		if err := results.Close(); err != nil {
			return pgconn.CommandTag{}, err
		}
		return pgconn.CommandTag{}, errNoResult
	}
	var err error
	reader := results.ResultReader()
	if read != nil {
		t.result = Result{results: reader, types: t.conn.Conn().TypeMap()}
		err = read(&t.result)
	}
	tag, closed := reader.Close()
	if err == nil {
		err = closed
	}
	return tag, err
}
