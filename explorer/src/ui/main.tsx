import { render } from "preact";
import { readPage } from "../engine/api";
import "./style.css";

function Models() {
  return (
    <ul>
      {readPage().models.map((model) => (
        <li key={model.id}>
          {model.label}: {model.task}
        </li>
      ))}
    </ul>
  );
}

const root = document.getElementById("explorer");
if (root) render(<Models />, root);
