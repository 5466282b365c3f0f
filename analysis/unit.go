package analysis

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

const (
	rootPath      = "github.com/oncebox/oncebox"
	bunPath       = "github.com/uptrace/bun"
	uowPath       = rootPath + "/uow"
	eventPath     = rootPath + "/event"
	inboxPath     = rootPath + "/inbox"
	messagingPath = rootPath + "/messaging"
)

// units calls fn for the body of each function that runs in a unit of work: the argument of Manager.Do, and the
// handlers of an inbox's consumers. A function that is named there is found if it belongs to the analyzed package.
func units(pass *analysis.Pass, in *inspector.Inspector, fn func(body *ast.BlockStmt)) {
	decls := map[types.Object]*ast.BlockStmt{}
	consumes := false
	in.Preorder([]ast.Node{(*ast.FuncDecl)(nil), (*ast.CallExpr)(nil)}, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.FuncDecl:
			decls[pass.TypesInfo.Defs[n.Name]] = n.Body
		case *ast.CallExpr:
			consumes = consumes || isConsumer(pass.TypesInfo, n)
		}
	})
	seen := map[*ast.BlockStmt]bool{}
	give := func(e ast.Expr) {
		var body *ast.BlockStmt
		switch e := ast.Unparen(e).(type) {
		case *ast.FuncLit:
			body = e.Body
		case *ast.Ident:
			body = decls[pass.TypesInfo.ObjectOf(e)]
		case *ast.SelectorExpr:
			body = decls[pass.TypesInfo.ObjectOf(e.Sel)]
		}
		if body != nil && !seen[body] {
			seen[body] = true
			fn(body)
		}
	}
	in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		info := pass.TypesInfo
		switch {
		case isMethod(info, call, uowPath, "Manager", "Do"), consumes && isFunc(info, call, messagingPath, "Handle"):
			for _, arg := range call.Args {
				give(arg)
			}
		case isConsumer(info, call) && !isLeased(info, call):
			for _, arg := range call.Args {
				if made, ok := ast.Unparen(arg).(*ast.CallExpr); ok && isNamed(info.TypeOf(made), messagingPath, "HandlerFunc") && len(made.Args) == 1 {
					arg = made.Args[0]
				}
				give(arg)
			}
		}
	})
}

// isConsumer reports whether the call gives a handler to an inbox, which runs it in a unit of work.
func isConsumer(info *types.Info, call *ast.CallExpr) bool {
	for _, name := range []string{"Consume", "ConsumeBatch", "Wrap", "WrapBatch"} {
		if isMethod(info, call, inboxPath, "Inbox", name) || isMethod(info, call, rootPath, "App", name) {
			return true
		}
	}
	return false
}

// isLeased reports whether the consumer's handler runs under a lease, and so without a unit of work.
func isLeased(info *types.Info, consumer *ast.CallExpr) bool {
	for _, arg := range consumer.Args {
		if option, ok := ast.Unparen(arg).(*ast.CallExpr); ok && isFunc(info, option, inboxPath, "Leased") {
			return true
		}
	}
	return false
}

// isFunc reports whether the call is of this function of a package.
func isFunc(info *types.Info, call *ast.CallExpr, path, name string) bool {
	called, ok := typeutil.Callee(info, call).(*types.Func)
	return ok && called.Name() == name && called.Signature().Recv() == nil && called.Pkg() != nil && called.Pkg().Path() == path
}

// isOfBun reports whether the call is of a method of bun, which stores a model and ignores its events.
func isOfBun(info *types.Info, call *ast.CallExpr) bool {
	called, ok := typeutil.Callee(info, call).(*types.Func)
	return ok && called.Pkg() != nil && strings.HasPrefix(called.Pkg().Path()+"/", bunPath+"/")
}

// isMethod reports whether the call is of this method of a named type.
func isMethod(info *types.Info, call *ast.CallExpr, path, typ, name string) bool {
	called, ok := typeutil.Callee(info, call).(*types.Func)
	if !ok || called.Name() != name {
		return false
	}
	receiver := called.Signature().Recv()
	return receiver != nil && isNamed(receiver.Type(), path, typ)
}

// isNamed reports whether t is a named type, or a pointer to it.
func isNamed(t types.Type, path, name string) bool {
	if pointer, ok := types.Unalias(t).(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path
}
