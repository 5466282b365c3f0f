package analysis

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// Pool finds statements that use the pool inside a unit of work. Such a statement commits by itself, and is executed
// again when the unit is run again. config.Config.RefusePool refuses these statements at run time, however the code got
// hold of the pool; this analyzer finds only what it can see in the source.
var Pool = &analysis.Analyzer{ //nolint:gochecknoglobals // analyzers are variables
	Name:     "unitpool",
	Doc:      "finds statements on the pool within a unit of work, where u.DB(), u.SQL() or u.Pgx() is meant",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      runPool,
}

// pools are the types of connection pools, with what a unit of work offers in place of each.
var pools = map[string]string{ //nolint:gochecknoglobals // a constant list
	"github.com/uptrace/bun.DB": "u.DB()", "database/sql.DB": "u.SQL()", "github.com/jackc/pgx/v5/pgxpool.Pool": "u.Pgx()",
}

// harmless are methods of pools that send no statement of the program.
var harmless = map[string]bool{ //nolint:gochecknoglobals // a constant list
	"Stats": true, "Stat": true, "Close": true, "Ping": true, "PingContext": true, "Dialect": true, "Formatter": true, "Config": true,
	"RegisterModel": true, "AddQueryHook": true, "Driver": true, "Table": true, "SetMaxOpenConns": true, "SetMaxIdleConns": true,
}

func runPool(pass *analysis.Pass) (any, error) {
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector) //nolint:forcetypeassert // what inspect returns
	units(pass, in, func(body *ast.BlockStmt) {
		ast.Inspect(body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok && !harmless[selector.Sel.Name] {
				if handle := poolOf(pass.TypesInfo, selector.X); handle != "" {
					pass.Reportf(call.Pos(),
						"a statement on the pool within a unit of work is committed by itself, whatever becomes of the unit: use %s", handle)
				}
			}
			for i, arg := range call.Args {
				if handle := poolOf(pass.TypesInfo, arg); handle != "" && takesAnyHandle(pass.TypesInfo, call, i) {
					pass.Reportf(arg.Pos(), "the pool is passed on within a unit of work, and what it does is committed by itself: pass %s", handle)
				}
			}
			return true
		})
	})
	return nil, nil //nolint:nilnil // an analyzer without a result
}

// poolOf returns what to use in place of the expression, "" if the expression is not a pool.
func poolOf(info *types.Info, e ast.Expr) string {
	t := info.TypeOf(e)
	if t == nil {
		return ""
	}
	pointer, ok := types.Unalias(t).(*types.Pointer)
	if !ok {
		return ""
	}
	named, ok := types.Unalias(pointer.Elem()).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return ""
	}
	return pools[named.Obj().Pkg().Path()+"."+named.Obj().Name()]
}

// takesAnyHandle reports whether the parameter is an interface, such as bun.IDB: such a function works with a
// transaction as well as with a pool, so it should get the transaction. A function whose parameter is the pool's own
// type, such as a constructor, means the pool.
func takesAnyHandle(info *types.Info, call *ast.CallExpr, at int) bool {
	signature, ok := info.TypeOf(call.Fun).(*types.Signature)
	if !ok || at >= signature.Params().Len() || signature.Variadic() && at >= signature.Params().Len()-1 {
		return false
	}
	named, ok := types.Unalias(signature.Params().At(at).Type()).(*types.Named)
	if !ok || !types.IsInterface(named) {
		return false
	}
	return named.Underlying().(*types.Interface).NumMethods() > 0 //nolint:forcetypeassert // IsInterface
}
